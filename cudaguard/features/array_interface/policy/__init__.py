"""What an array interface means, and the form in which a consumer reads it rightly."""
