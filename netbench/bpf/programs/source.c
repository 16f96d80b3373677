// The test frames of one trial, written into live frames (generators/xdp/xdp_trial.py has the same `struct trial`).
//
// Each run has a frame of the kernel's to fill and send, or to give back. Frames come back from where they were sent,
// maybe altered on the way: every header is written anew. The layout is that of generators/frames.py.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define NS_PER_S 1000000000ULL
#define MAGIC 0xbe9be955
#define HEADERS 58
// Reading the clock costs as much as sending: without a rate, so many frames (2 us) bear one time.
#define CLOCK_EVERY 16
// A frame that is given back goes through the lock by which the receiver gives back those it got: many a second would
// slow it down. So the next frame is waited for, 5 us at most, after which the kernel may look at what else there is.
#define MOST_WAITS 256
// A pause between two looks at the clock that is longer than this is a stall: the program did not run.
#define PAUSE_NS 1000000ULL

// Times are CLOCK_MONOTONIC in ns; a fraction is one of a ns, in 1/2^32.
struct trial {
	// What is asked for.
	__u64 headers[5];     // bytes 0-39 of a frame of the first flow: up to the UDP length
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
	__u64 done;           // set by the program that ends the trial
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trial);
} trials SEC(".maps");

// Frames of a mix have sizes, and so headers, of their own; the live frame is as long as the longest of them.
struct shape {
	__u64 headers[5];
	__u64 shorter; // bytes
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct shape);
} shapes SEC(".maps");

// Both UDP ports of each flow, as in the frame.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 60000);
	__type(key, __u32);
	__type(value, __u32);
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

static __always_inline int send(struct xdp_md *frame, struct trial *trial, __u64 stamp)
{
	const __u64 *headers = trial->headers;

	if (trial->shapes) {
		__u32 place = trial->place;
		const struct shape *shape = bpf_map_lookup_elem(&shapes, &place);

		if (!shape || (shape->shorter && bpf_xdp_adjust_tail(frame, -(int)shape->shorter)))
			return XDP_ABORTED;
		headers = shape->headers;
		trial->place = place + 1 < trial->shapes ? place + 1 : 0;
	}
	__u8 *data = (void *)(long)frame->data;

	if (data + HEADERS > (__u8 *)(long)frame->data_end)
		return XDP_ABORTED;
	for (int word = 0; word < 5; word++)
		*(__u64 *)(data + 8 * word) = headers[word];
	*(__u16 *)(data + 40) = 0;  // no UDP checksum
	*(__u32 *)(data + 42) = bpf_htonl(MAGIC);
	*(__u32 *)(data + 46) = bpf_htonl((__u32)trial->sent);
	*(__u64 *)(data + 50) = stamp;
	if (trial->flows > 1) {
		__u32 flow = trial->flow;
		__u32 *ports = bpf_map_lookup_elem(&flows, &flow);

		if (ports)
			*(__u32 *)(data + 34) = *ports;
		trial->flow = flow + 1 < trial->flows ? flow + 1 : 0;
	}
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

	if (now > since + PAUSE_NS) {
		trial->stalled_ns += now - since;
		trial->stalls++;
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
