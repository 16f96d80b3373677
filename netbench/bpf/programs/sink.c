// Counts the frames of one stream where they come in, as netbench/capture does those of a capture: which they are, their
// order, their delays. Frames that have been counted end here; all others go their way. Of these programs one is loaded
// (`?`: none unasked). It runs in the driver or right behind it (XDP), or where rules at the ingress are (tcx). The frames
// are plain ones, recognised by IPv4 addresses, or have headers that a packet describes (nb_headers_*).
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

#include "sink_counts.h"
#include "sink_headers.h"

#define LINK_LOCAL 0x0180c200 // and 00:00 to 00:0f: IEEE 802.1Q, table 8-1
#define FLUSH 0x0f // netbench/sinks/flush.py
#define FCS 4
#define TAG 4
#define ADDRESSES 12 // bytes before a tag
#define SHORTEST 64 // frame on Ethernet, with FCS

// Ethernet, the longest IPv4 header, UDP, pktgen's header.
#define MOST_HEADERS (ETH_HLEN + 60 + 8 + 16)
// What is found out of a value from here on, is of the register in which it is used. Before Linux 6.8 the verifier does not
// learn from "not 0" that something is 1 or more; each frame has an Ethernet header at least.
#define KNOWN_TO_VERIFIER(value) asm volatile("" : "+r"(value))

// Behind the addresses of a frame with a tag and its first EtherType: what there is of the tag, and the next EtherType.
struct vlan {
	__be16 control, protocol;
};

// Whether it is one of the stream that had not arrived before; its place among them is then to->distinct - 1.
static __always_inline int count_plain_frame(struct counts *to, struct history *past, const struct settings *set, __u64 *word,
				    struct shape *shape, const struct seen *seen, __u64 number)
{
	to->matched++;
	if (!seen->is_test) {
		to->foreign++;
		return 0;
	}
	if (seen->source != set->source) {
		if (!set->stamped || seen->stamp_us < set->from_us)
			to->late[seen->source % 256]++;
		else
			to->foreign++;
		return 0;
	}
	if (seen->length + FCS != shape->size || seen->stamp_us < set->from_us || seen->stamp_us >= set->until_us ||
	    (__s64)number < (__s64)set->start || number >= set->stop) {
		to->foreign++;
		return 0;
	}
	return count_number(to, past, set, word, shape, seen, number);
}

// Whether it is a frame between bridges and other devices on the link, which is counted here.
static __always_inline int count_control(struct counts *to, const struct ethhdr *ethernet, __be16 protocol, __u32 tag)
{
	const __be16 *address = (const void *)ethernet->h_dest;
	__u32 first = bpf_ntohs(address[0]) << 16 | bpf_ntohs(address[1]), last = bpf_ntohs(address[2]);

	if ((first != LINK_LOCAL || last > FLUSH) && (protocol != bpf_htons(ETH_P_LLDP) || tag))
		return 0;
	bpf_spin_lock(&to->lock);
	to->matched++;
	to->control += first != LINK_LOCAL || last != FLUSH;
	bpf_spin_unlock(&to->lock);
	return 1;
}

// Whether it is a frame for this sink, whosever, of which `ip` is what comes behind Ethernet's header and a tag.
// `sampled`: where its first bytes are to go, if anywhere.
static __always_inline int receive(const struct ethhdr *ethernet, __be16 protocol, const struct iphdr *ip, void *end,
				   struct seen *seen, struct sample **sampled)
{
	const struct settings *set = bpf_map_lookup_elem(&settings, &(__u32){0});
	struct counts *to = bpf_map_lookup_elem(&counts, &(__u32){0});
	struct history *past = bpf_map_lookup_elem(&history, &(__u32){0});
	int is_new;

	if (!set || !to || !past || count_control(to, ethernet, protocol, seen->tag))
		return 0;
	if (protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end || ip->protocol != IPPROTO_UDP ||
	    (bpf_ntohl(ip->saddr) & set->netmask) != set->network || bpf_ntohl(ip->daddr) != set->destination)
		return 0;

	__u32 ip_bytes = ip->ihl * 4;
	const struct pktgen *test = (void *)ip + ip_bytes + sizeof(struct udphdr);
	seen->source = bpf_ntohl(ip->saddr);
	if (ip->version == 4 && ip_bytes >= sizeof(*ip) && !(ip->frag_off & bpf_htons(0x1fff)) &&
	    ETH_HLEN + seen->tag + ip_bytes + sizeof(struct udphdr) + sizeof(*test) <= set->snap_length &&
	    (void *)(test + 1) <= end && test->magic == bpf_htonl(MAGIC)) {
		seen->is_test = 1;
		seen->sequence = bpf_ntohl(test->sequence);
		seen->stamp_us = bpf_ntohl(test->seconds) * 1000000ULL + bpf_ntohl(test->microseconds);
	}
	__u64 *word = bpf_map_lookup_elem(&arrived, &(__u32){(seen->sequence & set->number_mask) / 64});
	__u64 number = number_of(to, set, seen);
	struct shape *shape = shape_of(&set->genome, number);
	if (!word || !shape)
		return 0;
	seen->at_ns = bpf_ktime_get_ns() + set->clock_ns;

	bpf_spin_lock(&to->lock);
	is_new = count_plain_frame(to, past, set, word, shape, seen, number);
	struct kept keep = keep_of(to, set, shape, is_new);
	bpf_spin_unlock(&to->lock);
	*sampled = keep_frame(&keep, set, shape, seen);
	return 1;
}

// Whether the frame in the scratch, of which `loaded` bytes are there, has pktgen's header: it is for this sink, then.
static __always_inline int receive_described(const struct headers *packet, struct scratch *scratch, __u32 loaded,
					     struct seen *seen)
{
	const struct settings *set = bpf_map_lookup_elem(&settings, &(__u32){0});
	struct counts *to = bpf_map_lookup_elem(&counts, &(__u32){0});
	struct history *past = bpf_map_lookup_elem(&history, &(__u32){0});
	struct changes *changed = bpf_map_lookup_elem(&changes, &(__u32){0});
	const struct ethhdr *ethernet = (const void *)scratch->frame;
	int is_new = 0, is_first_elsewhere = 0;
	__u32 at;

	if (!set || !to || !past || !changed || count_control(to, ethernet, ethernet->h_proto, 0) ||
	    is_of_other_stream(packet, scratch))
		return 0;
	const struct pktgen *test = find_pktgen(packet, scratch, loaded, &at);
	if (!test)
		return 0;
	seen->sequence = bpf_ntohl(test->sequence);
	seen->stamp_us = bpf_ntohl(test->seconds) * 1000000ULL + bpf_ntohl(test->microseconds);
	__u64 number = number_of(to, set, seen);
	struct shape *shape = shape_of(&set->genome, number);
	struct flow *flow = bpf_map_lookup_elem(&flows, &(__u32){flow_of(packet, scratch, number)});
	__u64 *word = bpf_map_lookup_elem(&arrived, &(__u32){(seen->sequence & set->number_mask) / 64});
	if (!flow || !word || !shape)
		return 0;
	int is_elsewhere = at != packet->place[0];
	// A frame that has lost headers may be as long as before: the shortest ones are padded.
	__u32 size = shape->size + at - packet->place[0], length = seen->length + FCS;
	int is_late = seen->stamp_us && seen->stamp_us < set->from_us;
	int is_foreign = (length != size && (length != SHORTEST || size > SHORTEST)) || seen->stamp_us < set->from_us ||
			 seen->stamp_us >= set->until_us || (__s64)number < (__s64)set->start || number >= set->stop;
	int differs = is_elsewhere || is_changed(packet, scratch, shape, flow);
	seen->at_ns = bpf_ktime_get_ns() + set->clock_ns;

	bpf_spin_lock(&to->lock);
	to->matched++;
	if (is_late)
		to->late[0]++;
	else if (is_foreign)
		to->foreign++;
	else
		is_new = count_number(to, past, set, word, shape, seen, number);
	if (is_new) {
		changed->frames += differs;
		is_first_elsewhere = is_elsewhere && !changed->other_headers;
		changed->other_headers += is_elsewhere;
		if (number < flow->next)
			changed->reordered_in_flows++;
		else
			flow->next = number + 1;
	}
	struct kept keep = keep_of(to, set, shape, is_new);
	bpf_spin_unlock(&to->lock);
	struct sample *sampled = keep_frame(&keep, set, shape, seen);
	if (sampled) {
		sampled->at_ns = seen->at_ns;
		sampled->length = seen->length;
		for (int i = 0; i < SAMPLE_BYTES / 8; i++) // with a tag that the kernel has taken out
			((__u64 *)sampled->bytes)[i] = scratch->frame[i];
	}
	if (is_first_elsewhere) {
		changed->other_at = at;
		for (int i = 0; i < HEADER_WORDS; i++)
			changed->other[i] = scratch->frame[i];
	}
	if (is_new && differs && !is_elsewhere)
		count_changes(packet, scratch, shape, flow, number, changed);
	return 1;
}

SEC("?tc")
int nb_sink_tcx(struct __sk_buff *skb)
{
	struct seen seen = {.tag = skb->vlan_present ? TAG : 0};
	struct sample *sampled = 0;

	seen.length = skb->len + seen.tag;
	if ((void *)(long)skb->data + MOST_HEADERS > (void *)(long)skb->data_end && skb->len > skb->data_end - skb->data)
		bpf_skb_pull_data(skb, skb->len < MOST_HEADERS ? skb->len : MOST_HEADERS);
	void *end = (void *)(long)skb->data_end;
	const struct ethhdr *ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) > end)
		return TC_ACT_UNSPEC;
	if (!receive(ethernet, ethernet->h_proto, (void *)(ethernet + 1), end, &seen, &sampled))
		return TC_ACT_UNSPEC;
	if (sampled) {
		__u32 captured = skb->len < SAMPLE_BYTES ? skb->len : SAMPLE_BYTES;
		sampled->at_ns = seen.at_ns;
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
	struct seen seen = {.length = bpf_xdp_get_buff_len(frame)};
	struct sample *sampled = 0;

	if ((void *)(ethernet + 1) > end)
		return XDP_PASS;
	__be16 protocol = ethernet->h_proto;
	// As the kernel takes out the outermost tag before tc and captures see a frame.
	if (protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD)) {
		if ((void *)(vlan + 1) > end)
			return XDP_PASS;
		protocol = vlan->protocol;
		seen.tag = TAG;
	}
	if (!receive(ethernet, protocol, (void *)(ethernet + 1) + seen.tag, end, &seen, &sampled))
		return XDP_PASS;
	if (sampled) {
		__u64 captured = seen.length < SAMPLE_BYTES ? seen.length : SAMPLE_BYTES;
		sampled->at_ns = seen.at_ns;
		sampled->length = seen.length;
		KNOWN_TO_VERIFIER(captured);
		if (captured >= ETH_HLEN)
			bpf_xdp_load_bytes(frame, 0, sampled->bytes, captured);
	}
	return XDP_DROP;
}

SEC("?tc")
int nb_headers_tcx(struct __sk_buff *skb)
{
	const struct headers *packet = bpf_map_lookup_elem(&headers, &(__u32){0});
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &(__u32){0});
	struct seen seen = {.tag = skb->vlan_present ? TAG : 0};

	if (!packet || !scratch)
		return TC_ACT_UNSPEC;
	seen.length = skb->len + seen.tag;
	__u64 loaded = seen.length < packet->loaded ? seen.length : packet->loaded, rest = loaded - seen.tag;
	KNOWN_TO_VERIFIER(rest);
	if (rest < ETH_HLEN || rest > MOST_LOADED - TAG)
		return TC_ACT_UNSPEC;
	if (skb->data_end - skb->data < rest)
		bpf_skb_pull_data(skb, rest);
	const void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (!copy_frame(scratch, seen.tag, data, end, rest))
		return TC_ACT_UNSPEC;
	if (seen.tag) {
		const __u32 *addresses = data;
		if ((const void *)addresses + ADDRESSES > end)
			return TC_ACT_UNSPEC;
		for (int i = 0; i < ADDRESSES / 4; i++)
			((__u32 *)scratch->frame)[i] = addresses[i];
		((__be16 *)scratch->frame)[ADDRESSES / 2] = skb->vlan_proto;
		((__be16 *)scratch->frame)[ADDRESSES / 2 + 1] = bpf_htons(skb->vlan_tci);
	}
	if (!receive_described(packet, scratch, loaded, &seen))
		return TC_ACT_UNSPEC;
	return TC_ACT_SHOT;
}

SEC("?xdp.frags")
int nb_headers_xdp(struct xdp_md *frame)
{
	const struct headers *packet = bpf_map_lookup_elem(&headers, &(__u32){0});
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &(__u32){0});
	struct seen seen = {.length = bpf_xdp_get_buff_len(frame)};

	if (!packet || !scratch)
		return XDP_PASS;
	__u64 loaded = seen.length < packet->loaded ? seen.length : packet->loaded;
	KNOWN_TO_VERIFIER(loaded);
	if (loaded < ETH_HLEN || loaded > MOST_LOADED || !copy_frame(scratch, 0, (void *)(long)frame->data, (void *)(long)frame->data_end, loaded))
		return XDP_PASS;
	if (!receive_described(packet, scratch, loaded, &seen))
		return XDP_PASS;
	return XDP_DROP;
}

char _license[] SEC("license") = "GPL";
