"""What is installed twice, or contradicts itself."""
