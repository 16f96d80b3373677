// The counts of a stream: which of its frames arrived, in which order, and when, as netbench/capture counts those of a
// capture. All of this is behind one lock. netbench/sinks/bpf_counter.py has the same structures, field by field.
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "array_map.h"
#include "sink_sizes.h"

// As netbench/capture/distribution.py: each doubling in 1024 steps; values up to 2^43 - 1.
#define STEP_BITS 10
#define MOST_SHIFT 32
#define STEPS ((MOST_SHIFT + 2) << STEP_BITS)
// For so many numbers back it is known when frames arrived, and so many breaks in their order.
#define RECENT (1 << 13)
#define BREAKS (1 << 16)
#define SAMPLE_BYTES 240
#define UNKNOWN ((__s64)(1ULL << 63))

struct settings {
	__u64 start, stop; // of the numbers that can have been sent
	__u64 from_us, until_us; // of the time stamps that frames can bear
	__s64 clock_ns; // CLOCK_REALTIME - CLOCK_MONOTONIC
	__u32 source, network, netmask, destination;
	__u32 snap_length; // headers must end within it
	__u32 stamped; // frames bear times
	__u32 stamped_early; // a frame's time is when the one before it was sent
	__u32 number_mask; // of the places in `arrived`
	__u32 time_shift; // the time of every 2^so-many-th frame is kept
	__u32 sample_every; // 0: none
	struct genome genome;
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

ARRAY(settings, struct settings, 1, 0);
ARRAY(counts, struct counts, 1, 0);
ARRAY(history, struct history, 1, 0);
ARRAY(arrived, __u64, 1, BPF_F_MMAPABLE); // a bit for each number; a power of two of them
ARRAY(times, __u64, 1, BPF_F_MMAPABLE); // of arrival, ns since 1970
ARRAY(samples, struct sample, 1, BPF_F_MMAPABLE);

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

static __always_inline __s64 delay_of(const struct frame *frame, __u64 number)
{
	return frame->mark == number + 2 ? frame->delay_ns : UNKNOWN;
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
	struct frame *frame = &past->recent[number % RECENT], *next = &past->recent[(number + 1) % RECENT];

	if (frame->mark != number + 2 || next->mark != number + 3)
		return;
	__s64 delay_ns = frame->arrived_ns - next->stamp_ns;
	tell_delay(to, past, number, delay_ns > 0 ? delay_ns : 0, 1);
}

static __always_inline void time_frame(struct counts *to, struct history *past, const struct settings *set, __u64 number,
				    const struct seen *seen)
{
	struct frame *place = &past->recent[number % RECENT];
	__s64 arrived_ns = seen->at_ns, stamp_ns = seen->stamp_us * 1000;

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

// The number of a frame: beyond 2^32 the one nearest to the highest so far (RFC 1982, section 3.2). Others may count
// meanwhile: the number nearest to one of theirs is the same.
static __always_inline __u64 number_of(const struct counts *to, const struct settings *set, const struct seen *seen)
{
	__u64 next = *(const volatile __u64 *)&to->next; // 0: no frame so far

	return next ? next - 1 + (__s64)(__s32)(seen->sequence - (__u32)(next - 1)) :
		      set->start + (__u32)(seen->sequence - (__u32)set->start);
}

// Whether it is one of the stream's numbers that had not arrived before; its place among them is then to->distinct - 1.
static __always_inline int count_number(struct counts *to, struct history *past, const struct settings *set, __u64 *word,
					struct shape *shape, const struct seen *seen, __u64 number)
{
	__u64 bit = 1ULL << (seen->sequence % 64);

	if (!to->frames || number < to->lowest)
		to->lowest = number;
	if (!to->frames || seen->at_ns < to->first_ns)
		to->first_ns = seen->at_ns;
	if (seen->at_ns > to->last_ns)
		to->last_ns = seen->at_ns;
	if (!to->frames || seen->stamp_us < to->first_stamp_us)
		to->first_stamp_us = seen->stamp_us;
	if (seen->stamp_us > to->last_stamp_us)
		to->last_stamp_us = seen->stamp_us;
	to->frames++;
	shape->frames++;
	if (*word & bit)
		return 0;
	*word |= bit;
	order_it(to, past, number);
	to->distinct++;
	shape->distinct++;
	if (set->stamped)
		time_frame(to, past, set, number, seen);
	return 1;
}

// What is kept of single frames once they have been counted: the time of some, the first bytes of some.
struct kept {
	__u64 place; // among the distinct frames
	__u64 place_in_size; // among those of its size
	__u32 sample;
	__u8 is_timed, is_timed_in_size, is_sampled;
};

static __always_inline struct kept keep_of(struct counts *to, const struct settings *set, const struct shape *shape,
					   int is_new)
{
	struct kept keep = {.place = to->distinct - 1, .place_in_size = shape->distinct - 1};
	__u64 between = (1ULL << set->time_shift) - 1;

	keep.is_timed = is_new && !(keep.place & between);
	keep.is_timed_in_size = is_new && set->genome.places > 1 && !(keep.place_in_size & between);
	if (set->sample_every && !to->to_sample--) {
		to->to_sample = set->sample_every - 1;
		keep.sample = to->sampled++;
		keep.is_sampled = 1;
	}
	return keep;
}

// Keep the time, unless it is one of those in between. Return where the first bytes of the frame are to go, if anywhere.
static __always_inline struct sample *keep_frame(const struct kept *keep, const struct settings *set,
					      const struct shape *shape, const struct seen *seen)
{
	if (keep->is_timed) {
		__u64 *time = bpf_map_lookup_elem(&times, &(__u32){keep->place >> set->time_shift});
		if (time)
			*time = seen->at_ns;
	}
	if (keep->is_timed_in_size) {
		__u32 place = shape->first_time + (keep->place_in_size >> set->time_shift);
		__u64 *time = bpf_map_lookup_elem(&times_by_size, &place);
		if (time)
			*time = seen->at_ns;
	}
	return keep->is_sampled ? bpf_map_lookup_elem(&samples, &(__u32){keep->sample}) : 0;
}
