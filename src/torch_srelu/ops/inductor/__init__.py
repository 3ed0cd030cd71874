"""What torch.compile makes of SReLU."""
