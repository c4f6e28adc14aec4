"""An encoder and images become cached features, and features become numbers with protocols."""
