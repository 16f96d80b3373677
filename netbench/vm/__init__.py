"""Virtual machines that netbench starts: QEMU, the channel into the guest, and a guest as a host."""
