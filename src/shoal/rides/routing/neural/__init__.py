"""Routes of many days in one batch: an attention encoder, and a decoder that places one request of each day a step."""
