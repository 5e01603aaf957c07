"""Transcripts with times: TextGrid, CTM, SRT and WebVTT."""
