"""netbench: how well hosts forward packets when they are virtualised, and how much guests disturb each other."""
