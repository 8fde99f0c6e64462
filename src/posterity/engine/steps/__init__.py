"""Operations that make a step: update, import, review, settle, revert."""
