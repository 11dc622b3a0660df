"""The store on DynamoDB: the same ports, shared by many nodes."""
