"""What is believed about each coefficient, and the bands that follow."""
