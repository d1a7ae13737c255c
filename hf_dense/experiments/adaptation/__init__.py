"""From documents to a verdict: does pre-training pay here, and which retriever is best?"""
