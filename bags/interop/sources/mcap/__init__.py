"""ROS recordings: MCAP files, rosbag2 folders, and ROS 1 bags."""
