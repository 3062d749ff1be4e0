return function() return { dissect = function() return false end } end
