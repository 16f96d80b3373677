// Counts the frames of one stream where they come in, as netbench/capture does those of a capture: which they are, their
// order, their delays. Frames that have been counted end here; all others go their way. Two programs do that, of which one
// is loaded (`?`: none unasked): in the driver or right behind it (XDP), or where rules at the ingress are (tcx).
//
// All that is counted is behind one lock: whichever CPUs receive, the numbers are exact.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAGIC 0xbe9be955 // of pktgen
#define LINK_LOCAL 0x0180c200 // and 00:00 to 00:0f: IEEE 802.1Q, table 8-1
#define FLUSH 0x0f // netbench/sinks/flush.py
#define FCS 4
#define TAG 4
// Ethernet, the longest IPv4 header, UDP, pktgen's header.
#define MOST_HEADERS (ETH_HLEN + 60 + 8 + 16)
// As netbench/capture/distribution.py: each doubling in 1024 steps; values up to 2^43 - 1.
#define STEP_BITS 10
#define MOST_SHIFT 32
#define STEPS ((MOST_SHIFT + 2) << STEP_BITS)
// For so many numbers back it is known when frames arrived, and so many breaks in their order.
#define RECENT (1 << 13)
#define BREAKS (1 << 16)
#define SAMPLE_BYTES 240
#define UNKNOWN ((__s64)(1ULL << 63))

// What is found out of a value from here on, is of the register in which it is used. Before Linux 6.8 the verifier does not
// learn from "not 0" that something is 1 or more; each frame has an Ethernet header at least.
#define KNOWN_TO_VERIFIER(value) asm volatile("" : "+r"(value))

struct settings {
	__u64 start, stop; // of the numbers that can have been sent
	__u64 from_us, until_us; // of the time stamps that frames can bear
	__s64 clock_ns; // CLOCK_REALTIME - CLOCK_MONOTONIC
	__u32 source, network, netmask, destination;
	__u32 size; // with FCS
	__u32 snap_length; // headers must end within it
	__u32 stamped; // frames bear times
	__u32 stamped_early; // a frame's time is when the one before it was sent
	__u32 number_mask; // of the places in `arrived`
	__u32 time_shift; // the time of every 2^so-many-th frame is kept
	__u32 sample_every; // 0: none
	__u32 padding;
};

struct spread {
	__u64 count;
	__s64 sum, least, most;
	__u32 steps[STEPS];
};

struct counts {
	struct bpf_spin_lock lock;
	__u32 to_sample; // frames until the next one of the sample
	__u64 matched, foreign, control;
	__u64 frames, distinct, reordered; // of the stream
	__u64 lowest, next; // number: the lowest, the highest + 1
	__u64 first_ns, last_ns, first_stamp_us, last_stamp_us;
	__u64 too_late; // frames of which `recent` knows no neighbours any more
	__u64 ranges, sampled;
	volatile __u64 low, high; // of a search: what is in a map the verifier knows nothing of, and need not try
	__u64 late[256]; // by the last byte of their source's address
	struct spread delay, variation, extent;
};

struct frame {
	__u64 mark; // its number + 2: 0 is no frame's, nor that of the one before number 0
	__s64 arrived_ns, stamp_ns, delay_ns;
};

// Numbers that arrived one after the other, each higher than all before: from start to stop - 1; `place` is how many
// frames had come before the first.
struct range {
	__u64 start, stop, place;
};

struct history {
	struct frame recent[RECENT];
	struct range ranges[BREAKS];
};

struct sample {
	__u64 at_ns, length;
	__u8 bytes[SAMPLE_BYTES];
};

#define ARRAY(name, of, entries, flags)                                                                                \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, entries);                                                                          \
		__uint(map_flags, flags);                                                                              \
		__type(key, __u32);                                                                                    \
		__type(value, of);                                                                                     \
	} name SEC(".maps")

ARRAY(settings, struct settings, 1, 0);
ARRAY(counts, struct counts, 1, 0);
ARRAY(history, struct history, 1, 0);
ARRAY(arrived, __u64, 1, BPF_F_MMAPABLE); // a bit for each number; a power of two of them
ARRAY(times, __u64, 1, BPF_F_MMAPABLE); // of arrival, ns since 1970
ARRAY(samples, struct sample, 1, BPF_F_MMAPABLE);

struct pktgen {
	__be32 magic, sequence, seconds, microseconds;
};

// Behind the addresses of a frame with a tag and its first EtherType: what there is of the tag, and the next EtherType.
struct vlan {
	__be16 control, protocol;
};

// What is to be known of a frame before it is counted.
struct seen {
	__u64 length, tag; // both in bytes: without FCS, with a tag that the kernel has taken out
	__u64 stamp_us, at_ns;
	__u32 is_test, source, sequence;
};

static __always_inline __u32 step_of(__s64 value)
{
	if (value <= 0)
		return 0;
	__u64 rest = value, bits = 0, some;
	// The place of the highest bit, without branches: the verifier would follow each of them.
	for (int half = 5; half >= 0; half--) {
		some = (((1ULL << (1 << half)) - 1 - rest) >> 63) << half; // whether it is beyond so many bits
		rest >>= some;
		bits += some;
	}
	__u64 shift = bits > STEP_BITS ? bits - STEP_BITS : 0;
	return (shift << STEP_BITS) + ((__u64)value >> shift);
}

static __always_inline void add(struct spread *to, __s64 value)
{
	__u32 step = step_of(value);

	if (!to->count || value < to->least)
		to->least = value;
	if (!to->count || value > to->most)
		to->most = value;
	to->count++;
	to->sum += value;
	if (step < STEPS)
		to->steps[step]++;
}

static __always_inline __s64 delay_of(const struct frame *one, __u64 number)
{
	return one->mark == number + 2 ? one->delay_ns : UNKNOWN;
}

// The delay of a frame is known, and with it how much it differs from those of its neighbours (RFC 5481, section 4.1).
static __always_inline void tell_delay(struct counts *to, struct history *past, __u64 number, __s64 delay_ns, int early)
{
	__s64 before = delay_of(&past->recent[(number - 1) % RECENT], number - 1);
	__s64 after = delay_of(&past->recent[(number + 1) % RECENT], number + 1);

	add(&to->delay, delay_ns);
	if (early && !delay_ns)
		return; // shorter than can be measured
	past->recent[number % RECENT].delay_ns = delay_ns;
	if (before != UNKNOWN)
		add(&to->variation, delay_ns > before ? delay_ns - before : before - delay_ns);
	if (after != UNKNOWN)
		add(&to->variation, delay_ns > after ? delay_ns - after : after - delay_ns);
}

// Of a frame whose stamp was made when the one before it had been sent: netbench.capture.delay_variation.EarlyStamps.
static __always_inline void tell_early(struct counts *to, struct history *past, __u64 number)
{
	struct frame *one = &past->recent[number % RECENT], *next = &past->recent[(number + 1) % RECENT];

	if (one->mark != number + 2 || next->mark != number + 3)
		return;
	__s64 delay_ns = one->arrived_ns - next->stamp_ns;
	tell_delay(to, past, number, delay_ns > 0 ? delay_ns : 0, 1);
}

static __always_inline void time_it(struct counts *to, struct history *past, const struct settings *set, __u64 number,
				    const struct seen *it)
{
	struct frame *place = &past->recent[number % RECENT];
	__s64 arrived_ns = it->at_ns, stamp_ns = it->stamp_us * 1000;

	if (number + RECENT <= to->next) {
		to->too_late++;
		return;
	}
	place->mark = number + 2;
	place->arrived_ns = arrived_ns;
	place->stamp_ns = stamp_ns;
	place->delay_ns = UNKNOWN;
	if (!set->stamped_early) {
		tell_delay(to, past, number, arrived_ns - stamp_ns, 0);
	} else {
		tell_early(to, past, number - 1);
		tell_early(to, past, number);
	}
}

// Reordering as of RFC 4737, sections 3.3 and 4.2: netbench.capture.sequences.ReorderingTracker.
static __always_inline void order_it(struct counts *to, struct history *past, __u64 number)
{
	struct range *last = &past->ranges[(to->ranges - 1) % BREAKS];
	__u64 place = to->distinct;

	if (number >= to->next) {
		if (!to->ranges || number != to->next || place != last->place + (number - last->start)) {
			if (to->ranges)
				last->stop = to->next;
			last = &past->ranges[to->ranges % BREAKS];
			last->start = number;
			last->place = place;
			to->ranges++;
		}
		to->next = number + 1;
		return;
	}
	to->reordered++;
	last->stop = to->next;
	__u64 higher = number + 1;
	to->low = to->ranges > BREAKS ? to->ranges - BREAKS : 0;
	to->high = to->ranges - 1;
	for (int i = 0; i < 17 && to->low < to->high; i++) {
		__u64 middle = (to->low + to->high) / 2;
		if (past->ranges[middle % BREAKS].stop > higher)
			to->high = middle;
		else
			to->low = middle + 1;
	}
	const struct range *first = &past->ranges[to->low % BREAKS];
	add(&to->extent, place - first->place - (higher > first->start ? higher - first->start : 0));
}

// Whether it is one of the stream that had not arrived before; its place among them is then to->distinct - 1.
static __always_inline int count_it(struct counts *to, struct history *past, const struct settings *set, __u64 *word,
				    const struct seen *it)
{
	__u64 number = set->start + (__u32)(it->sequence - (__u32)set->start), bit = 1ULL << (it->sequence % 64);

	to->matched++;
	if (!it->is_test) {
		to->foreign++;
		return 0;
	}
	if (it->source != set->source) {
		if (!set->stamped || it->stamp_us < set->from_us)
			to->late[it->source % 256]++;
		else
			to->foreign++;
		return 0;
	}
	if (to->frames) // beyond 2^32: the number nearest to the highest so far (RFC 1982, section 3.2)
		number = to->next - 1 + (__s64)(__s32)(it->sequence - (__u32)(to->next - 1));
	if (it->length + FCS != set->size || it->stamp_us < set->from_us || it->stamp_us >= set->until_us ||
	    (__s64)number < (__s64)set->start || number >= set->stop) {
		to->foreign++;
		return 0;
	}
	if (!to->frames || number < to->lowest)
		to->lowest = number;
	if (!to->frames || it->at_ns < to->first_ns)
		to->first_ns = it->at_ns;
	if (it->at_ns > to->last_ns)
		to->last_ns = it->at_ns;
	if (!to->frames || it->stamp_us < to->first_stamp_us)
		to->first_stamp_us = it->stamp_us;
	if (it->stamp_us > to->last_stamp_us)
		to->last_stamp_us = it->stamp_us;
	to->frames++;
	if (*word & bit)
		return 0;
	*word |= bit;
	order_it(to, past, number);
	to->distinct++;
	if (set->stamped)
		time_it(to, past, set, number, it);
	return 1;
}

static __always_inline int is_control(const struct ethhdr *ethernet, __be16 protocol, __u32 tag, int *is_flush)
{
	const __be16 *address = (const void *)ethernet->h_dest;
	__u32 first = bpf_ntohs(address[0]) << 16 | bpf_ntohs(address[1]);

	*is_flush = first == LINK_LOCAL && bpf_ntohs(address[2]) == FLUSH;
	return (first == LINK_LOCAL && bpf_ntohs(address[2]) <= FLUSH) ||
	       (protocol == bpf_htons(ETH_P_LLDP) && !tag);
}

// Whether it is a frame for this sink, whosever, of which `ip` is what comes behind Ethernet's header and a tag.
// `sampled`: where its first bytes are to go, if anywhere.
static __always_inline int receive(const struct ethhdr *ethernet, __be16 protocol, const struct iphdr *ip, void *end,
				   struct seen *it, struct sample **sampled)
{
	const struct settings *set = bpf_map_lookup_elem(&settings, &(__u32){0});
	struct counts *to = bpf_map_lookup_elem(&counts, &(__u32){0});
	struct history *past = bpf_map_lookup_elem(&history, &(__u32){0});
	int is_flush, is_new;
	__u64 place;
	__u32 sample_at = 0, wants_sample = 0;

	if (!set || !to || !past)
		return 0;
	if (is_control(ethernet, protocol, it->tag, &is_flush)) {
		bpf_spin_lock(&to->lock);
		to->matched++;
		to->control += !is_flush;
		bpf_spin_unlock(&to->lock);
		return 0;
	}
	if (protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || ip->protocol != IPPROTO_UDP ||
	    (bpf_ntohl(ip->saddr) & set->netmask) != set->network || bpf_ntohl(ip->daddr) != set->destination)
		return 0;

	__u32 ip_bytes = ip->ihl * 4;
	const struct pktgen *test = (void *)ip + ip_bytes + sizeof(struct udphdr);
	it->source = bpf_ntohl(ip->saddr);
	if (ip->version == 4 && ip_bytes >= sizeof(*ip) && !(ip->frag_off & bpf_htons(0x1fff)) &&
	    ETH_HLEN + it->tag + ip_bytes + sizeof(struct udphdr) + sizeof(*test) <= set->snap_length &&
	    (void *)(test + 1) <= end && test->magic == bpf_htonl(MAGIC)) {
		it->is_test = 1;
		it->sequence = bpf_ntohl(test->sequence);
		it->stamp_us = bpf_ntohl(test->seconds) * 1000000ULL + bpf_ntohl(test->microseconds);
	}
	__u64 *word = bpf_map_lookup_elem(&arrived, &(__u32){(it->sequence & set->number_mask) / 64});
	if (!word)
		return 0;
	it->at_ns = bpf_ktime_get_ns() + set->clock_ns;

	bpf_spin_lock(&to->lock);
	is_new = count_it(to, past, set, word, it);
	place = to->distinct - 1;
	if (set->sample_every && !to->to_sample--) {
		to->to_sample = set->sample_every - 1;
		sample_at = to->sampled++;
		wants_sample = 1;
	}
	bpf_spin_unlock(&to->lock);

	if (is_new && !(place & ((1ULL << set->time_shift) - 1))) {
		__u64 *time = bpf_map_lookup_elem(&times, &(__u32){place >> set->time_shift});
		if (time)
			*time = it->at_ns;
	}
	if (wants_sample)
		*sampled = bpf_map_lookup_elem(&samples, &sample_at);
	return 1;
}

SEC("?tc")
int nb_sink_tcx(struct __sk_buff *skb)
{
	struct seen it = {.tag = skb->vlan_present ? TAG : 0};
	struct sample *sampled = 0;

	it.length = skb->len + it.tag;
	if ((void *)(long)skb->data + MOST_HEADERS > (void *)(long)skb->data_end && skb->len > skb->data_end - skb->data)
		bpf_skb_pull_data(skb, skb->len < MOST_HEADERS ? skb->len : MOST_HEADERS);
	void *end = (void *)(long)skb->data_end;
	const struct ethhdr *ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) > end)
		return TC_ACT_UNSPEC;
	if (!receive(ethernet, ethernet->h_proto, (void *)(ethernet + 1), end, &it, &sampled))
		return TC_ACT_UNSPEC;
	if (sampled) {
		__u32 captured = skb->len < SAMPLE_BYTES ? skb->len : SAMPLE_BYTES;
		sampled->at_ns = it.at_ns;
		sampled->length = skb->len;
		KNOWN_TO_VERIFIER(captured);
		if (captured >= ETH_HLEN)
			bpf_skb_load_bytes(skb, 0, sampled->bytes, captured);
	}
	return TC_ACT_SHOT;
}

SEC("?xdp.frags")
int nb_sink_xdp(struct xdp_md *frame)
{
	void *end = (void *)(long)frame->data_end;
	const struct ethhdr *ethernet = (void *)(long)frame->data;
	const struct vlan *vlan = (void *)(ethernet + 1);
	struct seen it = {.length = bpf_xdp_get_buff_len(frame)};
	struct sample *sampled = 0;

	if ((void *)(ethernet + 1) > end)
		return XDP_PASS;
	__be16 protocol = ethernet->h_proto;
	// As the kernel takes out the outermost tag before tc and captures see a frame.
	if (protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD)) {
		if ((void *)(vlan + 1) > end)
			return XDP_PASS;
		protocol = vlan->protocol;
		it.tag = TAG;
	}
	if (!receive(ethernet, protocol, (void *)(ethernet + 1) + it.tag, end, &it, &sampled))
		return XDP_PASS;
	if (sampled) {
		__u64 captured = it.length < SAMPLE_BYTES ? it.length : SAMPLE_BYTES;
		sampled->at_ns = it.at_ns;
		sampled->length = it.length;
		KNOWN_TO_VERIFIER(captured);
		if (captured >= ETH_HLEN)
			bpf_xdp_load_bytes(frame, 0, sampled->bytes, captured);
	}
	return XDP_DROP;
}

char _license[] SEC("license") = "GPL";
