"""The fastest source, inside the kernel: a BPF program that fills XDP live frames."""
