mod conformance;
mod expressions;
mod order;
