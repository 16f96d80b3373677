// Declares a BPF map: an array, with 32-bit keys.
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define ARRAY(name, of, entries, flags)                                                                                \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, entries);                                                                          \
		__uint(map_flags, flags);                                                                              \
		__type(key, __u32);                                                                                    \
		__type(value, of);                                                                                     \
	} name SEC(".maps")
