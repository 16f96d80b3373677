// The sizes of a stream's frames: one, or those of a mix (netbench/model/frame_size.py). The number of a frame determines
// its size. netbench/sinks/bpf_sizes.py and bpf_headers.py fill these maps; the structures match, field by field.
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "array_map.h"

#define MOST_PLACES 1024 // in a genome: netbench/model/frame_size.py
#define HEADER_WORDS 32 // of 8 bytes
#define MOST_CHECKSUMS 4 // netbench/model/frame_template.py

// The frames of one size.
struct shape {
	__u64 frames, distinct; // counted
	__u32 size; // with FCS, at the sink
	__u32 first_time; // the place of their first time in `times_by_size`
	__u32 sum[MOST_CHECKSUMS]; // of described packets: the complement of flow 0's
	__u64 bytes[HEADER_WORDS]; // of described packets: the first ones of flow 0
};

// Frame number n has the shape genome[n mod places].
struct genome {
	__u32 places, padding;
	__u16 shape[MOST_PLACES];
};

ARRAY(shapes, struct shape, 1, BPF_F_MMAPABLE);
ARRAY(times_by_size, __u64, 1, BPF_F_MMAPABLE); // of arrival, ns since 1970; of mixes only

// The shape of a frame; the division is for mixes only.
static __always_inline struct shape *shape_of(const struct genome *genome, __u64 number)
{
	__u32 shape = genome->places > 1 ? genome->shape[number % genome->places % MOST_PLACES] : 0;

	return bpf_map_lookup_elem(&shapes, &shape);
}
