"""What an app does often, done often: nothing is left over of it."""
