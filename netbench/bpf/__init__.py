"""BPF programs of netbench's own, loaded into the kernel, attached, and run: by the distribution's libbpf."""
