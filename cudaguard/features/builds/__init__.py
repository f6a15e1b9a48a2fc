"""Builds with ``torch.utils.cpp_extension``: locks that stay, and GPUs that torch cannot know."""
