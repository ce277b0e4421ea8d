"""What `ulnet demo` does: move a file between two nodes over all their rails, and prove that it arrived."""
