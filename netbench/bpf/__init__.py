"""netbench's BPF programs, loaded into the kernel, attached, and run with the distribution's libbpf."""
