"""What tests of several rooms share: cases of operations, and the laws that every operation keeps."""
