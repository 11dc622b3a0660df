"""Every frame in every codec, as bytes that other SDKs can check too."""
