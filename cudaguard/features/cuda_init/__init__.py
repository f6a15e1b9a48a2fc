"""Who initializes CUDA, who creates which context, and what forks and late variables then cost."""
