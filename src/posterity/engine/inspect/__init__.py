"""What a store shows: changes, explanations, reliability."""
