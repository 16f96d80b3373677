"""Guest images: a kernel and an initramfs made from Debian packages, the same guest for every VMM."""
