"""Settings of nodes whose files are in a bucket of the S3 server of the tests."""

from tests.services import s3_target, service_environment


def files_in_s3() -> dict[str, str]:
    """A place that no other test has. Its keys are settings: DynamoDB has others in the environment."""
    target, variables = s3_target(), service_environment("s3")
    return {
        "PARLEY_ATTACHMENTS_TARGET": target,
        "PARLEY_ATTACHMENTS_ENDPOINT": variables["AWS_ENDPOINT_URL_S3"],
        "PARLEY_ATTACHMENTS_REGION": variables["AWS_REGION"],
        "PARLEY_ATTACHMENTS_ACCESS_KEY_ID": variables["AWS_ACCESS_KEY_ID"],
        "PARLEY_ATTACHMENTS_SECRET_ACCESS_KEY": variables["AWS_SECRET_ACCESS_KEY"],
    }
