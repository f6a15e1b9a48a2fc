"""What is said of builds."""
