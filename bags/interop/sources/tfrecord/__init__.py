"""TFRecord and ArrayRecord files of `tf.train.Example`, also of TensorFlow Datasets."""
