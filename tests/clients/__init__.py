"""What is written in TypeScript, run by its own tools."""
