"""Where frames arrive: tcpdump."""
