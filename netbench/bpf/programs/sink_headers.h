// Headers of described packets: where pktgen's header is in a frame, to which flow the frame belongs, and which of its
// header fields are not as expected. netbench/sinks/bpf_headers.py fills these maps; the structures match, field by field.
//
// Of a frame, words of 8 bytes are compared that are the same in all flows (those of its size), then those bytes that differ between flows.
// Fields are only compared one by one if any of these differs.
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "array_map.h"
#include "sink_sizes.h"

#define MAGIC 0xbe9be955 // of pktgen
#define MOST_LOADED (8 * HEADER_WORDS)
#define MOST_OFFSETS 9
#define MOST_FIELDS 192
#define MOST_MACS 64
#define MOST_WORDS 12 // netbench/model/frame_template.py

struct pktgen {
	__be32 magic, sequence, seconds, microseconds;
};

// The bits of a field: those in `masks` of three words from `word` on. A longer field takes several of these.
struct field {
	__u32 word, is_last;
	__u64 masks[3];
};

// A MAC address as it lies in the first two words of a frame, in the bits of `masks`.
struct mac_address {
	__u64 words[2], masks[2];
};

struct headers {
	__u64 macs; // of frames that belong to other streams
	struct mac_address others[MOST_MACS];
	__u64 masks[HEADER_WORDS]; // of the bits that all flows have in common
	__u32 words; // before pktgen's header
	__u32 loaded; // bytes of a frame that contain pktgen's header wherever it may be; 0: nothing is counted
	__u32 places, place[MOST_OFFSETS]; // where it may be; the first one is where it should be
	__u32 flows;
	__u32 flow_words, word_at[MOST_WORDS], word_mask[MOST_WORDS]; // that differ between flows
	__u32 sums, sum_at[MOST_CHECKSUMS], sum_mask[MOST_CHECKSUMS];
	__u32 sum_is_udp[MOST_CHECKSUMS]; // is never 0
	__u32 fields;
	struct field field[MOST_FIELDS];
};

// What differs between flows: netbench.packets.flow_values.FlowBytes. With the frames that arrived: one line of a cache.
struct flow {
	__u32 words[MOST_WORDS];
	__u16 sums[MOST_CHECKSUMS];
	__u64 next; // the highest number + 1
};

// The first frame that differs in a field: its number, and the three words in which the field is.
struct first_change {
	__u64 number, words[3];
};

struct changes {
	__u64 frames, reordered_in_flows;
	__u64 other_headers; // frames that have pktgen's header at another place
	__u64 other_at, other[HEADER_WORDS]; // that place in the first of them, and its first bytes
	__u64 fields[MOST_FIELDS];
	struct first_change first[MOST_FIELDS];
};

// Of one CPU. Two more words: a place in the 32 words may be that of something longer.
struct scratch {
	__u64 frame[HEADER_WORDS + 2], expected[HEADER_WORDS + 2];
	__u64 number; // of the last frame
	__u32 flow, flows;
};

ARRAY(headers, struct headers, 1, 0);
ARRAY(flows, struct flow, 1, BPF_F_MMAPABLE);
ARRAY(changes, struct changes, 1, 0);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

// What is at a byte of a frame in the scratch; no longer than two words.
static __always_inline void *at_byte(__u64 *words, __u32 byte)
{
	return (__u8 *)words + (byte & (MOST_LOADED - 1));
}

// Copy the first bytes of a frame to the scratch, `behind` bytes from its beginning. The kernel's helpers take twice as
// long. Return 0 if they are not all there.
static __always_inline int copy_frame(struct scratch *scratch, __u32 behind, const void *data, const void *end, __u64 bytes)
{
	__u8 *to = (__u8 *)scratch->frame + (behind & 7);
	__u32 at;

	if (end - data < bytes)
		return 0;
	for (at = 0; at < MOST_LOADED - 8 && at < bytes && data + at + 8 <= end; at += 8)
		*(__u64 *)(to + at) = *(__u64 *)(data + at);
	if (at >= bytes)
		return 1;
	// The frame ends within a word.
	data += at;
	to += at;
	if (data + 4 <= end) {
		*(__u32 *)to = *(__u32 *)data;
		data += 4;
		to += 4;
	}
	if (data + 2 <= end) {
		*(__u16 *)to = *(__u16 *)data;
		data += 2;
		to += 2;
	}
	if (data + 1 <= end)
		*to = *(__u8 *)data;
	return 1;
}

// Whether the frame in the scratch belongs to another stream, by its MAC addresses.
static __always_inline int is_of_other_stream(const struct headers *packet, const struct scratch *scratch)
{
	for (int i = 0; i < MOST_MACS && i < packet->macs; i++) {
		const struct mac_address *mac = &packet->others[i];

		if (!(((scratch->frame[0] ^ mac->words[0]) & mac->masks[0]) |
		      ((scratch->frame[1] ^ mac->words[1]) & mac->masks[1])))
			return 1;
	}
	return 0;
}

// pktgen's header in the first `loaded` bytes of a frame; 0: none.
static __always_inline const struct pktgen *find_pktgen(const struct headers *packet, struct scratch *scratch, __u32 loaded,
							__u32 *at)
{
	for (int i = 0; i < MOST_OFFSETS && i < packet->places; i++) {
		const struct pktgen *test = at_byte(scratch->frame, packet->place[i]);

		*at = packet->place[i];
		if (*at + sizeof(*test) <= loaded && test->magic == bpf_htonl(MAGIC))
			return test;
	}
	return 0;
}

// Number mod flows. Numbers mostly rise by little, and then no division is necessary.
static __always_inline __u32 flow_of(const struct headers *packet, struct scratch *scratch, __u64 number)
{
	__u64 ahead = number - scratch->number, flow = scratch->flow + ahead;

	if (scratch->flows != packet->flows || number < scratch->number || ahead >= packet->flows)
		flow = number % packet->flows;
	else if (flow >= packet->flows)
		flow -= packet->flows;
	scratch->number = number;
	scratch->flow = flow;
	scratch->flows = packet->flows;
	return flow;
}

static __always_inline __be16 checksum_of(const struct headers *packet, const struct shape *shape,
					  const struct flow *flow, int i)
{
	__u32 sum = shape->sum[i] + flow->sums[i];

	sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
	return bpf_htons(sum || !packet->sum_is_udp[i] ? sum : 0xffff);
}

// Whether any header byte of the frame in the scratch is not that of its size and flow.
static __always_inline int is_changed(const struct headers *packet, struct scratch *scratch, const struct shape *shape,
				      const struct flow *flow)
{
	__u64 differing = 0;

	for (int i = 0; i < HEADER_WORDS && i < packet->words; i++)
		differing |= (scratch->frame[i] ^ shape->bytes[i]) & packet->masks[i];
	for (int i = 0; i < MOST_WORDS && i < packet->flow_words; i++)
		differing |= (*(__u32 *)at_byte(scratch->frame, packet->word_at[i]) ^ flow->words[i]) & packet->word_mask[i];
	for (int i = 0; i < MOST_CHECKSUMS && i < packet->sums; i++)
		differing |= (*(__be16 *)at_byte(scratch->frame, packet->sum_at[i]) ^ checksum_of(packet, shape, flow, i)) &
			     packet->sum_mask[i];
	return differing != 0;
}

// Count the fields of frame `number`, in the scratch, that are not those of its size and flow.
static __always_inline void count_changes(const struct headers *packet, struct scratch *scratch, const struct shape *shape,
					  const struct flow *flow, __u64 number, struct changes *to)
{
	__u64 differing = 0;

	for (int i = 0; i < HEADER_WORDS; i++)
		scratch->expected[i] = shape->bytes[i];
	for (int i = 0; i < MOST_WORDS && i < packet->flow_words; i++)
		*(__u32 *)at_byte(scratch->expected, packet->word_at[i]) = flow->words[i];
	for (int i = 0; i < MOST_CHECKSUMS && i < packet->sums; i++)
		*(__be16 *)at_byte(scratch->expected, packet->sum_at[i]) = checksum_of(packet, shape, flow, i);
	for (int i = 0; i < MOST_FIELDS && i < packet->fields; i++) {
		const struct field *field = &packet->field[i];
		__u32 word = field->word % HEADER_WORDS;
		const __u64 *frame = &scratch->frame[word], *expected = &scratch->expected[word];

		for (int part = 0; part < 3; part++)
			differing |= (frame[part] ^ expected[part]) & field->masks[part];
		if (!field->is_last)
			continue;
		if (differing && !__sync_fetch_and_add(&to->fields[i], 1)) {
			struct first_change *first = &to->first[i];

			first->number = number;
			for (int part = 0; part < 3; part++)
				first->words[part] = frame[part];
		}
		differing = 0;
	}
}
