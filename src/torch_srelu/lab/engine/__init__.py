"""Many runs at once, each in a process of its own."""
