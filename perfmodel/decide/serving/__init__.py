"""What a service should be: its curve over load with bands, the knee and its cause, the fleet, the search."""
