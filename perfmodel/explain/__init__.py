"""Where each number of a prediction comes from."""
