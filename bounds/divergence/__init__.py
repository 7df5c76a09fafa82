"""Two distributions go in, numbers come out; KL is always KL(roll||theta), in nats."""
