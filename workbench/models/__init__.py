"""What a run costs at least: counts of its inputs, and the time they take at measured rates."""
