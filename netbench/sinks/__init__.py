"""What receives frames and says what came: tcpdump is the reference."""
