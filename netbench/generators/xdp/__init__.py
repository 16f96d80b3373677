"""The source at the kernel's speed: a BPF program that fills XDP live frames."""
