"""Interface texts in many languages and real detectors of their language, for the demo."""
