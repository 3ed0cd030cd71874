"""After how many epochs of guessing a run is given up."""

DEAD_AFTER = 2  # from the start
# From the start for the other systems on CIFAR and MNIST: Maxout, with its small published weights
# behind much dropout, was still guessing after 900 small batches, though its outputs had begun to
# differ. Later in training for every run: of the recorded runs that fell back, one recovered after
# six epochs, and one guessed for the 99 that it had left.
PATIENCE = 20
