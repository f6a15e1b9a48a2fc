"""One library's names taken for another's."""
