// Sends every frame that comes in on one interface out of another, unchanged.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

// The interface that frames leave by, for the one they come in on: DEVMAP_HASH is found by its key, not by its place.
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, __u32);
} leaves_by SEC(".maps");

SEC("xdp")
int nb_forward(struct xdp_md *frame)
{
	return bpf_redirect_map(&leaves_by, frame->ingress_ifindex, XDP_PASS);
}

char _license[] SEC("license") = "GPL";
