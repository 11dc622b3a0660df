"""What is kept of people of other systems, and of programs that act for somebody."""
