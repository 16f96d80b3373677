// The test frames of one trial, written into live frames (generators/xdp/xdp_trial.py has the same `struct trial`).
//
// Each run has a frame of the kernel's to fill and send, or to give back. Frames come back from where they were sent,
// maybe altered on the way: every header is written anew. A template (model/frame_template.py) defines the layout.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define NS_PER_S 1000000000ULL
#define MAGIC 0xbe9be955
// Of the headers up to the payload, so many words of 8 bytes are written into each frame: the shortest one has room for
// them and for the payload behind. More are written in pairs, up to the payload.
#define USUAL_WORDS 6
#define MOST_WORDS 24
#define PAYLOAD_BYTES 16
// What differs between flows: words of 4 bytes, and checksums.
#define FLOW_WORDS 12
#define FLOW_SUMS 4
// Reading the clock costs as much as sending: without a rate, so many frames (2 us) bear one time.
#define CLOCK_EVERY 16
// A frame that is given back goes through the lock by which the receiver gives back those it got: many a second would
// slow it down. So the next frame is waited for, 5 us at most, after which the kernel may look at what else there is.
#define MOST_WAITS 256
// A shorter pause than a stall, while a frame is overdue, is backpressure where the receiver works on this CPU. To hand
// over the frames of a batch takes up to 2 us.
#define HAND_OVER_NS 2000ULL

// The headers of all frames of one size. The live frame is as long as the longest frames of a mix.
struct shape {
	__u64 headers[MOST_WORDS];  // the first bytes of a frame of the first flow
	__u64 shorter;              // bytes
	__u32 checksums[FLOW_SUMS]; // the complement of each checksum that differs between flows, as in the frame
};

// What one flow has in its frames. Sums are added to the complements of checksums (RFC 1624, equation 3). Both are as in
// the frame: one's complement sums do not depend on the byte order (RFC 1071, section 2).
struct flow {
	__u32 words[FLOW_WORDS];
	__u32 sums[FLOW_SUMS];
};

// Times are CLOCK_MONOTONIC in ns; a fraction is one of a ns, in 1/2^32.
struct trial {
	// What is asked for.
	struct shape only;    // of all frames, if there are no `shapes`
	__u64 payload_at;     // the byte at which pktgen's header begins
	__u64 complement_at;  // the byte of what makes the sum of that header constant; 0: it is not constant
	__u64 words;          // that differ between flows
	__u64 sums;           // checksums that differ between flows
	__u8 words_at[FLOW_WORDS];
	__u8 sums_at[FLOW_SUMS];
	__u16 zero_sums[FLOW_SUMS]; // what a checksum of 0 is written as
	__u64 start_ns;       // when the first frame is due
	__u64 end_ns;         // from when on nothing is sent
	__u64 frames;
	__u64 gap_ns;
	__u64 gap_fraction;
	__u64 least_gap_ns;   // between frames that are overdue, in the mean
	__u64 ahead_ns;       // of that mean, so that as many leave together as the batch has
	__u64 first_frames;   // after so many frames, where any, the gap is another one
	__u64 later_gap_ns;
	__u64 later_gap_fraction;
	__u64 flows;
	__u64 batch;          // so many runs leave together
	__u64 hold_ns;        // for so long a frame waits for the next of its batch
	__u64 pause_ns;       // a longer pause between two looks at the clock is a stall: the program did not run
	// What was done.
	__u64 second_ns;      // when the second of CLOCK_REALTIME began that is now
	__u64 second;
	__u64 stamp;
	__u64 due_ns;         // of the next frame
	__u64 due_fraction;
	__u64 earliest_ns;    // of the next frame but for `ahead_ns`, whenever it was due
	__u64 run;            // of the batch
	__u64 held;           // whether the batch has a frame
	__u64 sent;
	__u64 flow;
	__u64 shapes;         // places in the genome of a mix; 0: all frames have one size
	__u64 place;          // of the next frame
	__u64 first_ns;
	__u64 last_ns;
	__u64 latest_ns;      // by how much a frame was late; without a rate, the longest pause
	__u64 burst;          // frames since one was waited for
	__u64 longest_burst;
	__u64 seen_ns;        // when the program looked at the clock last
	__u64 stalled_ns;     // the sum of all stalls
	__u64 stalls;         // their number
	__u64 backpressure_ns; // the sum of the shorter pauses while a frame was overdue
	__u64 done;           // set by the program that ends the trial
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trial);
} trials SEC(".maps");

// By place in the genome of a mix.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct shape);
} shapes SEC(".maps");

// The number of entries is set when the program is loaded.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} leaves_by SEC(".maps");

static __always_inline struct trial *this_trial(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&trials, &first);
}

// Seconds and microseconds as in the frame.
static __always_inline __u64 stamp(struct trial *trial, __u64 now)
{
	__u64 since = now - trial->second_ns;

	if (since >= NS_PER_S) {
		__u64 seconds = since / NS_PER_S;

		trial->second += seconds;
		trial->second_ns += seconds * NS_PER_S;
		since -= seconds * NS_PER_S;
	}
	// since / 1000, for less than 2^30, without the division.
	return (__u64)bpf_htonl(since * 274877907 >> 38) << 32 | bpf_htonl((__u32)trial->second);
}

// Write the headers up to the payload; returns 0 where the frame is too short for them.
static __always_inline int write_headers(__u8 *data, __u8 *end, const struct trial *trial, const __u64 *headers)
{
	if (data + 8 * USUAL_WORDS > end)
		return 0;
#pragma unroll
	for (int word = 0; word < USUAL_WORDS; word++)
		*(__u64 *)(data + 8 * word) = headers[word];
#pragma unroll
	for (int word = USUAL_WORDS; word < MOST_WORDS; word += 2) {
		if (8 * word >= trial->payload_at)
			break;
		if (data + 8 * word + 16 > end)
			return 0;
		*(__u64 *)(data + 8 * word) = headers[word];
		*(__u64 *)(data + 8 * word + 8) = headers[word + 1];
	}
	return 1;
}

// Write pktgen's header, and its complement (RFC 7820, section 3.2).
static __always_inline int write_payload(__u8 *data, __u8 *end, const struct trial *trial, __u64 stamp)
{
	__u8 *payload = data + (trial->payload_at & 0xff);
	__u32 sequence = bpf_htonl((__u32)trial->sent);

	if (payload + PAYLOAD_BYTES > end)
		return 0;
	*(__u32 *)payload = bpf_htonl(MAGIC);
	*(__u32 *)(payload + 4) = sequence;
	*(__u64 *)(payload + 8) = stamp;
	if (trial->complement_at) {
		__u8 *complement = data + (trial->complement_at & 0xff);
		__u64 sum = (__u64)sequence + (__u32)stamp + (stamp >> 32);

		if (complement + 2 > end)
			return 0;
		sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
		sum = (sum & 0xffff) + (sum >> 16);
		*(__u16 *)complement = ~(sum + (sum >> 16));
	}
	return 1;
}

// Write what differs between flows.
static __always_inline int write_flow(__u8 *data, __u8 *end, struct trial *trial, const __u32 *checksums)
{
	__u32 number = trial->flow;
	const struct flow *flow = bpf_map_lookup_elem(&flows, &number);

	if (!flow)
		return 0;
#pragma unroll
	for (int i = 0; i < FLOW_WORDS; i++) {
		if (i >= trial->words)
			break;
		__u8 *at = data + trial->words_at[i];

		if (at + 4 > end)
			return 0;
		*(__u32 *)at = flow->words[i];
	}
#pragma unroll
	for (int i = 0; i < FLOW_SUMS; i++) {
		if (i >= trial->sums)
			break;
		__u8 *at = data + trial->sums_at[i];
		__u32 sum = checksums[i] + flow->sums[i];
		__u16 checksum = ~((sum & 0xffff) + (sum >> 16));

		if (at + 2 > end)
			return 0;
		*(__u16 *)at = checksum ? checksum : trial->zero_sums[i];
	}
	trial->flow = number + 1 < trial->flows ? number + 1 : 0;
	return 1;
}

static __always_inline int send(struct xdp_md *frame, struct trial *trial, __u64 stamp)
{
	const struct shape *shape = &trial->only;

	if (trial->shapes) {
		__u32 place = trial->place;

		shape = bpf_map_lookup_elem(&shapes, &place);
		if (!shape || (shape->shorter && bpf_xdp_adjust_tail(frame, -(int)shape->shorter)))
			return XDP_ABORTED;
		trial->place = place + 1 < trial->shapes ? place + 1 : 0;
	}
	__u8 *data = (void *)(long)frame->data, *end = (void *)(long)frame->data_end;

	if (!write_headers(data, end, trial, shape->headers) || !write_payload(data, end, trial, stamp))
		return XDP_ABORTED;
	if (trial->flows > 1 && !write_flow(data, end, trial, shape->checksums))
		return XDP_ABORTED;
	trial->sent++;
	trial->held = 1;
	return bpf_redirect_map(&leaves_by, 0, XDP_ABORTED);
}

// When the next frame may leave.
static __always_inline __u64 leaves_at(const struct trial *trial)
{
	__u64 earliest = trial->earliest_ns > trial->ahead_ns ? trial->earliest_ns - trial->ahead_ns : 0;

	return earliest > trial->due_ns ? earliest : trial->due_ns;
}

// Account for the time since the last look at the clock. No frame is due before the start.
static __always_inline void look(struct trial *trial, __u64 now)
{
	__u64 since = trial->seen_ns > trial->start_ns ? trial->seen_ns : trial->start_ns;

	__u64 overdue = trial->due_ns > since ? trial->due_ns : since;

	if (now > since + trial->pause_ns) {
		trial->stalled_ns += now - since;
		trial->stalls++;
	} else if (now > overdue + HAND_OVER_NS) {
		trial->backpressure_ns += now - overdue;
	}
	trial->seen_ns = now;
}

SEC("xdp")
int paced(struct xdp_md *frame)
{
	struct trial *trial = this_trial();
	__u64 now = bpf_ktime_get_ns();

	if (!trial)
		return XDP_ABORTED;
	if (!trial->done)
		look(trial, now);
	if (++trial->run > trial->batch) {
		trial->run = 1;
		trial->held = 0;
	}
	__u64 at = leaves_at(trial);
	if (now < at) {
		trial->burst = 0;
		if (!trial->held || at - now <= trial->hold_ns)
			for (int i = 0; i < MOST_WAITS && now < at && !trial->done; i++)
				now = bpf_ktime_get_ns();
		trial->seen_ns = now;
	}
	if (now < at || trial->done)
		return XDP_DROP;
	if (trial->sent >= trial->frames || now >= trial->end_ns) {
		trial->done = 1;
		return XDP_DROP;
	}
	if (now - trial->due_ns > trial->latest_ns)
		trial->latest_ns = now - trial->due_ns;
	if (++trial->burst > trial->longest_burst)
		trial->longest_burst = trial->burst;
	if (!trial->sent)
		trial->first_ns = now;
	trial->last_ns = now;
	if (trial->earliest_ns < now)
		trial->earliest_ns = now;
	trial->earliest_ns += trial->least_gap_ns;
	if (trial->first_frames && trial->sent == trial->first_frames) {
		trial->gap_ns = trial->later_gap_ns;
		trial->gap_fraction = trial->later_gap_fraction;
	}
	trial->due_fraction += trial->gap_fraction;
	trial->due_ns += trial->gap_ns + (trial->due_fraction >> 32);
	trial->due_fraction = (__u32)trial->due_fraction;
	return send(frame, trial, stamp(trial, now));
}

SEC("xdp")
int unpaced(struct xdp_md *frame)
{
	struct trial *trial = this_trial();

	if (!trial)
		return XDP_ABORTED;
	if (trial->sent % CLOCK_EVERY == 0) {
		__u64 now = bpf_ktime_get_ns();

		if (now < trial->start_ns || trial->done)
			return XDP_DROP;
		if (now >= trial->end_ns) {
			trial->done = 1;
			return XDP_DROP;
		}
		look(trial, now);
		if (!trial->sent)
			trial->first_ns = now;
		else if (now - trial->last_ns > trial->latest_ns)
			trial->latest_ns = now - trial->last_ns;
		trial->last_ns = now;
		trial->stamp = stamp(trial, now);
	}
	return send(frame, trial, trial->stamp);
}

// Some drivers take frames only from a NIC at which a program is attached.
SEC("xdp")
int attached(struct xdp_md *frame)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
