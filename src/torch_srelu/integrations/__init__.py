"""SReLU in Lightning, transformers and timm. Nothing here is imported unless asked for.

torch_srelu.integrations.lightning      callback: freezes, adapts at the right epoch
torch_srelu.integrations.transformers   callback for Trainer; hidden_act="srelu"
torch_srelu.integrations.timm           act_layer="srelu"
"""
