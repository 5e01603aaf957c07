"""The types `video` and `audio`, for the registry of types."""

from __future__ import annotations

from bags.dataset.format.registry import TypeFunctions
from bags.media.audio import decode_audio
from bags.media.encoders import audio_options, encode_audio, encode_video, stored_video_options
from bags.media.video import decode_video

VIDEO = TypeFunctions(encode_video, decode_video, stored_video_options)
AUDIO = TypeFunctions(encode_audio, decode_audio, audio_options)
